# cli.cmake -- the program relpos, its manual pages and tools. relpos_cli contains the program without main, so tests can link it.
# SPDX-License-Identifier: Apache-2.0
file(GLOB cli_sources CONFIGURE_DEPENDS cli/*.c cli/*/*.c)
list(FILTER cli_sources EXCLUDE REGEX "/main\\.c$")
file(GLOB nn_sources CONFIGURE_DEPENDS lab/engine/*.c) # the engine loads a CBLAS at run time
set_source_files_properties(lab/engine/adamw.c PROPERTIES COMPILE_OPTIONS "${vector_loops}")
add_library(relpos_cli STATIC ${nn_sources} ${cli_sources})
target_link_libraries(relpos_cli PUBLIC relpos_io relpos_layers_f32 PRIVATE relpos_client relpos_tokenizer INTERFACE relpos_t5 ${encoder_library} ${CMAKE_DL_LIBS})
file(RELATIVE_PATH doc_from_program ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_DOCDIR})
if(hdf5_FOUND)
  # protein_hdf5.c loads the library when it is needed, by the name that programs linked with it would load
  list(GET hdf5_LINK_LIBRARIES 0 hdf5_library)
  file(REAL_PATH ${hdf5_library} hdf5_library)
  get_filename_component(hdf5_library ${hdf5_library} NAME)
  string(REGEX REPLACE "([.]so[.][0-9]+)[.].*$" "\\1" hdf5_library ${hdf5_library})
  target_include_directories(relpos_cli PRIVATE ${hdf5_INCLUDE_DIRS})
  target_compile_definitions(relpos_cli PRIVATE RELPOS_HDF5="${hdf5_library}")
endif()
target_compile_definitions(relpos_cli PRIVATE RELPOS_BUILD_TYPE="${CMAKE_BUILD_TYPE}"
                                              RELPOS_DOC_FROM_PROGRAM="${doc_from_program}")
add_executable(relpos_program cli/main.c)
file(RELATIVE_PATH lib_from_program ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}) # works after the prefix is moved
set_target_properties(relpos_program PROPERTIES OUTPUT_NAME relpos INSTALL_RPATH "${here}/${lib_from_program}")
target_link_libraries(relpos_program PRIVATE relpos_cli relpos_flags)
install(TARGETS relpos_program RUNTIME COMPONENT runtime)

# The program looks for these files next to itself or in its documentation folder.
file(GLOB report_files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} lab/report/*.py)
foreach(file ${report_files})
  configure_file(${file} ${file} COPYONLY)
endforeach()
file(GLOB experiments lab/*.lab)
install(FILES ${report_files} DESTINATION ${CMAKE_INSTALL_DOCDIR}/lab/report COMPONENT runtime)
install(FILES ${experiments} lab/corpus.sh lab/ranking.sh lab/stages.py lab/split.py lab/corpus.sums lab/phonemes.sh DESTINATION ${CMAKE_INSTALL_DOCDIR}/lab COMPONENT runtime)
file(GLOB examples examples/data/*.npz)
install(FILES ${examples} DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples/data COMPONENT runtime)
if(NOT RELPOS_BUILD_PYTHON) # too large for a wheel
  install(DIRECTORY lab/model DESTINATION ${CMAKE_INSTALL_DOCDIR}/lab COMPONENT runtime)
  foreach(tool compare cases errors) # for ./demo, the tests and docs/maintainers/numerics.md; not installed
    add_executable(${tool} tools/${tool}.c)
    target_link_libraries(${tool} PRIVATE relpos_cli relpos_flags m)
  endforeach()
endif()

# The program prints its own completion for shells.
if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
  set(data ${CMAKE_INSTALL_DATADIR})
  if(RELPOS_BUILD_PYTHON) # shells search next to the environment's bin
    set(data ${SKBUILD_DATA_DIR}/share)
  endif()
  set(completions)
  foreach(file bash-completion/completions/relpos zsh/site-functions/_relpos fish/vendor_completions.d/relpos.fish)
    string(REGEX MATCH "^[a-z]+" shell ${file})
    get_filename_component(folder ${file} DIRECTORY)
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/completion/${folder})
    # LD_LIBRARY_PATH: in a wheel, the program searches the folders of the installation
    add_custom_command(OUTPUT completion/${file} DEPENDS relpos_program VERBATIM
      COMMAND ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=$<TARGET_FILE_DIR:relpos> ${CMAKE_CROSSCOMPILING_EMULATOR}
              $<TARGET_FILE:relpos_program> info --completion ${shell} > completion/${file})
    list(APPEND completions ${PROJECT_BINARY_DIR}/completion/${file})
    install(FILES ${PROJECT_BINARY_DIR}/completion/${file} DESTINATION ${data}/${folder} COMPONENT runtime)
  endforeach()
  add_custom_target(completion ALL DEPENDS ${completions})
endif()

find_program(SCDOC scdoc)
if(SCDOC)
  file(GLOB pages CONFIGURE_DEPENDS docs/man/*.scd)
  if(RELPOS_BUILD_PYTHON) # the wheel has no headers, so omit section 3; man searches next to the environment's bin
    list(FILTER pages INCLUDE REGEX "\\.1\\.scd$")
    set(CMAKE_INSTALL_MANDIR ${SKBUILD_DATA_DIR}/share/man)
  endif()
  foreach(page ${pages})
    get_filename_component(name ${page} NAME_WLE) # relpos.1.scd -> relpos.1
    string(REGEX REPLACE ".*\\." "" section ${name})
    add_custom_command(OUTPUT ${name} COMMAND ${SCDOC} < ${page} > ${name} DEPENDS ${page} VERBATIM)
    list(APPEND man_pages ${PROJECT_BINARY_DIR}/${name})
    install(FILES ${PROJECT_BINARY_DIR}/${name} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT runtime)
  endforeach()
  add_custom_target(man ALL DEPENDS ${man_pages})
endif()
