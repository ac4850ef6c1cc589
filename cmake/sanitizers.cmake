# For everything, dependencies' inline code included: a half-sanitized program gives false reports.
if(OCTAVO_SANITIZE)
  add_compile_options(-fsanitize=${OCTAVO_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${OCTAVO_SANITIZE})
endif()
