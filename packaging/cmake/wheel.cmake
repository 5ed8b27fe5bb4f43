# wheel.cmake -- the Python package: the extension modules of python/relpos (limited API of Python 3.11), and settings that keep
# the wheel small. pyproject.toml puts the component runtime into the package, so one library serves the modules and the program.
# SPDX-License-Identifier: Apache-2.0
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
# Options of code that takes little time. It stays in the order of its files, which compresses better than the order of
# the names of functions.
set(small -Os -fno-function-sections -fno-data-sections)
# relpos_extension(TARGET LIBRARY FOLDER SHARED): the module _core of a folder of the package, from the C files of FOLDER/_core
# and of the folder SHARED, if it is given
function(relpos_extension target library folder)
  set(patterns python/${folder}/_core ${ARGN})
  list(TRANSFORM patterns APPEND /*.c)
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  add_library(${target} MODULE ${sources})
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${small}")
  target_compile_definitions(${target} PRIVATE Py_LIMITED_API=0x030b0000)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE ${library} relpos_flags Python::Module)
  file(RELATIVE_PATH library_folder ${CMAKE_INSTALL_PREFIX}/${folder} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME _core PREFIX "" SUFFIX .abi3.so
    INSTALL_RPATH "${here}/${library_folder}" LIBRARY_OUTPUT_DIRECTORY python/${folder})
  install(TARGETS ${target} LIBRARY DESTINATION ${folder} COMPONENT python)
endfunction()
relpos_extension(relpos_python relpos relpos)
if(models)
  relpos_extension(relpos_python_t5 relpos_t5 relpos/t5 python/relpos/_core/models)
  relpos_extension(relpos_python_encoder relpos_t5 relpos/encoder python/relpos/_core/models)
endif()
install(PROGRAMS python/relpos.script DESTINATION ${SKBUILD_SCRIPTS_DIR} RENAME relpos COMPONENT python)

# Both Python and the program need io and the libraries below it. To store them only once, relpos_t5 contains the program.
if(program)
  set_target_properties(relpos_cli PROPERTIES EXCLUDE_FROM_ALL ON)
  target_sources(relpos_t5 PRIVATE $<TARGET_OBJECTS:relpos_cli>)
  target_link_libraries(relpos_t5 PRIVATE relpos_layers_f32 relpos_client ${CMAKE_DL_LIBS})
  target_link_options(relpos_t5 PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(relpos_program PROPERTIES LINK_LIBRARIES "relpos_t5;relpos_flags")
  target_include_directories(relpos_program PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/models)
endif()

# The sources of the page are not in the source distribution, so tools/release.sh builds the page first.
set(RELPOS_PAGE "" CACHE FILEPATH "The page of relpos explore, relpos-explorer.html, as part of the wheel (empty: without)")
if(RELPOS_PAGE)
  install(FILES ${RELPOS_PAGE} DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME relpos-explorer.html COMPONENT runtime)
endif()

# A wheel cannot have symbolic links, so each link of a library would be a copy.
set_target_properties(relpos PROPERTIES VERSION ${soversion})
if(models)
  set_target_properties(relpos_t5 PROPERTIES VERSION ${soversion})
endif()
# Without this, the build folder would be part of each build ID, and wheels from two folders would differ.
foreach(name relpos relpos_python relpos_python_t5 relpos_python_encoder relpos_t5 relpos_program)
  if(TARGET ${name})
    set_target_properties(${name} PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
  endif()
endforeach()

# ---- size
# Omit unwind tables, since no exceptions pass through C and debuggers have other tables. Let the linker drop unused functions.
target_compile_options(relpos_flags INTERFACE -fno-asynchronous-unwind-tables -ffunction-sections -fdata-sections)
set(drop_unused $<IF:$<BOOL:${APPLE}>,-Wl$<COMMA>-dead_strip,-Wl$<COMMA>--gc-sections>)
target_link_options(relpos_flags INTERFACE ${drop_unused})
# Sorting functions by name puts the versions of a function for different instruction sets within the 32 kB window of deflate, which
# saves 0.08 MB.
if(NOT APPLE)
  target_link_options(relpos PRIVATE -Wl,--sort-section=name)
  if(models)
    target_link_options(relpos_t5 PRIVATE -Wl,--sort-section=name)
  endif()
endif()
# Emulated AMX tiles are only for tests, and would be a fifth of the wheel.
target_compile_definitions(relpos PRIVATE RPI_NO_AMX_EMULATED)
set(emulated ${PROJECT_SOURCE_DIR}/src/isa/amx_emulated.c)
# -Os for code that runs once per call or only in checks, and for plain vectors, which only processors without AVX2 use.
foreach(name generic generic_f64)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/isa/${name}.c PROPERTIES COMPILE_OPTIONS "${kernel_options};-Os")
endforeach()
file(GLOB small_sources src/api/*.c src/reference/*.c)
list(APPEND small_sources src/terms/facts.c src/terms/forms.c src/terms/shape.c src/terms/term_syntax.c src/sources/choose.c
  src/sources/limits.c src/sources/place.c)
set_source_files_properties(${small_sources} PROPERTIES COMPILE_OPTIONS "${small}")
if(models)
  set_source_files_properties(${linear_set_sources} PROPERTIES COMPILE_OPTIONS "${kernel_options};${unchecked};-Os")
  target_compile_definitions(relpos_linear PRIVATE RPI_NO_AMX_EMULATED)
  list(APPEND emulated ${PROJECT_SOURCE_DIR}/models/linear/sets/amx_emulated.c)
  target_compile_options(relpos_client INTERFACE ${small}) # for files and the program, which take little time
  set_source_files_properties(models/checkpoint/finite.c models/t5/layers.c models/t5/logits.c models/t5/attention.c PROPERTIES COMPILE_OPTIONS -O2)
endif()
set_source_files_properties(${emulated} PROPERTIES HEADER_FILE_ONLY ON)
# One clone for AVX2 is enough. With gcc, vectorizing without the rest of -O3, and without vector code for the last elements, is as fast.
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
  set(vectors -O2 -ftree-loop-vectorize -ftree-slp-vectorize -fvect-cost-model=dynamic --param=vect-epilogues-nomask=0)
else()
  set(vectors -O3)
endif()
set_source_files_properties(models/layers/rows.c lab/engine/adamw.c PROPERTIES COMPILE_OPTIONS "${vectors};-fno-math-errno;-fno-trapping-math"
  COMPILE_DEFINITIONS RPI_TWO_CLONES)
