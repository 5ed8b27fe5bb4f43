# models.cmake -- the libraries relpos_layers, relpos_t5 and relpos_encoder, and those that they contain: relpos_linear, relpos_io,
# relpos_tokenizer and relpos_checkpoint.
# SPDX-License-Identifier: Apache-2.0
file(GLOB linear_sources CONFIGURE_DEPENDS models/linear/*.c)
file(GLOB linear_set_sources CONFIGURE_DEPENDS models/linear/sets/*.c)
set_source_files_properties(${linear_set_sources} PROPERTIES COMPILE_OPTIONS "${kernel_options};${unchecked}")
add_library(relpos_linear STATIC ${linear_sources} ${linear_set_sources})
target_include_directories(relpos_linear PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/models PRIVATE src)
target_link_libraries(relpos_linear PUBLIC relpos PRIVATE relpos_flags Threads::Threads m)

# The arithmetic of layers, in f32 and f64.
set(vector_loops -O3 -fno-math-errno -fno-trapping-math)
set(numeric_sources models/layers/gemm.c models/layers/linear.c models/layers/project.c models/layers/rows.c)
set_source_files_properties(models/layers/rows.c PROPERTIES COMPILE_OPTIONS "${vector_loops}")
foreach(type f32 f64)
  add_library(relpos_layers_${type} STATIC ${numeric_sources})
  target_include_directories(relpos_layers_${type} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/models PRIVATE src)
  target_link_libraries(relpos_layers_${type} PUBLIC relpos PRIVATE relpos_flags m)
endforeach()
target_compile_definitions(relpos_layers_f64 PRIVATE LAYERS_F64)

set(io_libraries PkgConfig::io)
if(program)
  list(APPEND io_libraries PkgConfig::png)
endif()
if(RELPOS_STATIC_IO)
  set(io_libraries)
  foreach(name zip jansson png z) # in link order
    find_library(static_${name} lib${name}.a HINTS ${RELPOS_STATIC_IO}/lib REQUIRED)
    list(APPEND io_libraries ${static_${name}})
  endforeach()
  install(DIRECTORY ${RELPOS_STATIC_IO}/licences DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
endif()
add_library(relpos_client INTERFACE) # settings shared by the libraries above the core
target_include_directories(relpos_client INTERFACE ${io_INCLUDE_DIRS} ${png_INCLUDE_DIRS})
target_link_libraries(relpos_client INTERFACE relpos_flags ${io_libraries} m)

file(GLOB io_sources CONFIGURE_DEPENDS models/io/*.c)
add_library(relpos_io STATIC ${io_sources})
target_include_directories(relpos_io PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/models)
target_link_libraries(relpos_io PUBLIC relpos PRIVATE relpos_client)

file(GLOB tokenizer_sources CONFIGURE_DEPENDS models/tokenizer/*.c)
add_library(relpos_tokenizer STATIC ${tokenizer_sources})
target_link_libraries(relpos_tokenizer PUBLIC relpos_io PRIVATE relpos_client)

file(GLOB checkpoint_sources CONFIGURE_DEPENDS models/checkpoint/*.c)
add_library(relpos_checkpoint STATIC ${checkpoint_sources})
target_link_libraries(relpos_checkpoint PUBLIC relpos_io relpos_linear PRIVATE relpos_client)

file(GLOB t5_sources CONFIGURE_DEPENDS models/t5/*.c)
add_library(relpos_t5 ${t5_sources})
target_link_libraries(relpos_t5 PUBLIC relpos PRIVATE $<BUILD_INTERFACE:relpos_flags> $<BUILD_INTERFACE:relpos_tokenizer>
  $<BUILD_INTERFACE:relpos_checkpoint> $<BUILD_INTERFACE:relpos_linear> $<BUILD_INTERFACE:relpos_io> m)
relpos_part(t5 "Models of the T5 family")

file(GLOB encoder_sources CONFIGURE_DEPENDS models/encoder/*.c)
set_source_files_properties(models/encoder/rows.c PROPERTIES COMPILE_OPTIONS "${vector_loops}")
if(RELPOS_BUILD_PYTHON) # in a wheel, one library has all models
  target_sources(relpos_t5 PRIVATE ${encoder_sources})
  set(encoder_library)
  return()
endif()
set(encoder_library relpos_encoder)
add_library(relpos_encoder ${encoder_sources})
target_link_libraries(relpos_encoder PUBLIC relpos PRIVATE $<BUILD_INTERFACE:relpos_flags> $<BUILD_INTERFACE:relpos_tokenizer>
  $<BUILD_INTERFACE:relpos_checkpoint> $<BUILD_INTERFACE:relpos_linear> $<BUILD_INTERFACE:relpos_io> m)
relpos_part(encoder "Encoders for search and classification")

file(GLOB layers_sources CONFIGURE_DEPENDS models/layers/*.c)
list(TRANSFORM numeric_sources PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE numeric_paths)
list(REMOVE_ITEM layers_sources ${numeric_paths})
add_library(relpos_layers ${layers_sources})
target_link_libraries(relpos_layers PUBLIC relpos PRIVATE $<BUILD_INTERFACE:relpos_flags> $<BUILD_INTERFACE:relpos_io>
  $<BUILD_INTERFACE:relpos_layers_f32> $<BUILD_INTERFACE:relpos_layers_f64> m)
relpos_part(layers "Attention layers with relative positions and gradients")

add_executable(bench_screen EXCLUDE_FROM_ALL bench/screen.c)
target_link_libraries(bench_screen PRIVATE relpos_t5 relpos_linear relpos_io relpos_flags m)
find_library(DNNL_LIBRARY dnnl) # Debian: libdnnl-dev. Its CMake package file fails if OpenCL is not installed.
find_path(DNNL_INCLUDE dnnl.h)
if(DNNL_LIBRARY AND DNNL_INCLUDE)
  add_executable(bench_linear EXCLUDE_FROM_ALL bench/linear.c)
  target_include_directories(bench_linear PRIVATE ${DNNL_INCLUDE})
  target_link_libraries(bench_linear PRIVATE relpos_linear relpos_flags ${DNNL_LIBRARY} m ${CMAKE_DL_LIBS})
endif()
