# Flags of our own code; not passed on to users. -ffp-contract=off: an fma is only where the source says fma, so that
# every compiler and instruction set gives the same bits.
add_library(octavo_build_flags INTERFACE)
target_compile_options(octavo_build_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                                                    -Wnon-virtual-dtor -Wimplicit-fallthrough -ffp-contract=off)
# g++ 12 warns of memcpy in its own std::string (GCC bug 105329).
target_compile_options(octavo_build_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(OCTAVO_WERROR)
  target_compile_options(octavo_build_flags INTERFACE -Werror)
endif()
