# For formats_test: the CUDA host conversions where they are
# installed.
find_path(OCTAVO_CUDA_INCLUDE cuda_fp4.h HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
          PATH_SUFFIXES include)
if(OCTAVO_CUDA_INCLUDE)
  set_source_files_properties(${dir}/cuda_oracle_test.cc PROPERTIES
                              COMPILE_DEFINITIONS OCTAVO_HAS_CUDA_CONVERSIONS
                              COMPILE_OPTIONS "-isystem;${OCTAVO_CUDA_INCLUDE}")
endif()
