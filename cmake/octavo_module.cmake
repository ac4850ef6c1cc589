# octavo_module(NAME DEPS ...): the library octavo_NAME (alias octavo::NAME) from octavo/NAME/**/*.cc.
#   *_test.cc   one test program NAME_test, its cases known to CTest
#   *_bench.cc  one program each, when OCTAVO_BENCH is on
#   *_<isa>.cc  compiled with that instruction set's flags (isa.cmake)
# A dependency is a sibling module's name or any CMake target.
function(octavo_module name)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  set(dir ${PROJECT_SOURCE_DIR}/octavo/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cc)
  set(tests ${sources})
  set(benches ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cc$")
  octavo_isa_sources(sources)

  set(deps "")
  foreach(dep IN LISTS arg_DEPS)
    if(dep MATCHES "::")
      list(APPEND deps ${dep})
    else()
      list(APPEND deps octavo::${dep})
    endif()
  endforeach()

  set(scope PUBLIC)
  if(sources)
    add_library(octavo_${name} STATIC ${sources})
    target_link_libraries(octavo_${name} PRIVATE $<BUILD_INTERFACE:octavo_build_flags>)
  else()
    add_library(octavo_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(octavo::${name} ALIAS octavo_${name})
  set_target_properties(octavo_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(octavo_${name} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                     $<INSTALL_INTERFACE:include>)
  target_link_libraries(octavo_${name} ${scope} ${deps})
  target_compile_features(octavo_${name} ${scope} cxx_std_23)
  set_property(GLOBAL APPEND PROPERTY OCTAVO_MODULES ${name})

  include(${dir}/module.cmake OPTIONAL)  # what a single module needs beyond this
  if(OCTAVO_TESTS AND tests)
    octavo_test(${name}_test SOURCES ${tests} DEPS octavo::${name})
  endif()
  if(OCTAVO_BENCH)
    foreach(bench IN LISTS benches)
      get_filename_component(bench_name ${bench} NAME_WE)
      add_executable(${bench_name} ${bench})
      target_link_libraries(${bench_name} PRIVATE octavo::${name} octavo_build_flags benchmark::benchmark)
    endforeach()
  endif()
endfunction()

# octavo_test(NAME SOURCES ... DEPS ...): a GoogleTest program. Suites whose name contains Slow get the label `slow`, all
# others `fast`.
function(octavo_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} octavo_build_flags GTest::gtest GTest::gmock GTest::gtest_main
                                        rapidcheck)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # a quarter less time to compile; the library keeps -O3
  target_compile_definitions(${name} PRIVATE OCTAVO_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden")
  gtest_discover_tests(${name} TEST_FILTER "-*Slow*" PROPERTIES LABELS fast TIMEOUT 300 DISCOVERY_TIMEOUT 60)
  gtest_discover_tests(${name} TEST_FILTER "*Slow*" PROPERTIES LABELS slow TIMEOUT 3600 DISCOVERY_TIMEOUT 60)
endfunction()
