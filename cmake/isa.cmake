# A file named *_<isa>.cc is compiled with that instruction set's flags, and is the only place for it. It puts all it
# defines in a namespace named <isa> and includes no inline code from outside it (scripts/check_isa_symbols).
# The ladder of levels and what each needs at run time: octavo/base/cpu_features.h.
set(OCTAVO_ISA_avx2 -mavx2 -mfma -mf16c)
set(OCTAVO_ISA_avx512bf16 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vbmi -mavx512bf16 -mfma -mf16c)

set(OCTAVO_ISA_LEVELS "")
if(NOT OCTAVO_PORTABLE AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  include(CheckCXXCompilerFlag)
  foreach(isa avx2 avx512bf16)
    string(JOIN " " flags ${OCTAVO_ISA_${isa}})
    check_cxx_compiler_flag("${flags}" OCTAVO_COMPILER_HAS_${isa})
    if(OCTAVO_COMPILER_HAS_${isa})
      list(APPEND OCTAVO_ISA_LEVELS ${isa})
    endif()
  endforeach()
endif()

# Drops the files of instruction sets that are left out and gives flags to the others. VAR: a list of sources.
function(octavo_isa_sources var)
  set(sources ${${var}})
  foreach(isa avx2 avx512bf16)
    set(files ${sources})
    list(FILTER files INCLUDE REGEX "_${isa}\\.cc$")
    if(isa IN_LIST OCTAVO_ISA_LEVELS)
      if(files)
        set_source_files_properties(${files} PROPERTIES COMPILE_OPTIONS "${OCTAVO_ISA_${isa}}")
      endif()
    else()
      list(FILTER sources EXCLUDE REGEX "_${isa}\\.cc$")
    endif()
  endforeach()
  set(${var} ${sources} PARENT_SCOPE)
endfunction()
