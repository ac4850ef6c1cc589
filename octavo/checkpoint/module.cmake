# An unfinished run goes on with the version that began it only.
target_compile_definitions(octavo_checkpoint PRIVATE OCTAVO_VERSION="${PROJECT_VERSION}")
