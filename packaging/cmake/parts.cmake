# parts.cmake -- install the libraries above relpos, each with a CMake target and a .pc file.
# SPDX-License-Identifier: Apache-2.0

# relpos_part(NAME DESCRIPTION [CFLAGS LIBS]): the library relpos_NAME is the component NAME of the CMake package, the
# target relpos::NAME and relpos_NAME.pc. CFLAGS and LIBS are what programs need besides relpos and relpos_NAME.
function(relpos_part name description)
  set(target relpos_${name})
  add_library(relpos::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES SOVERSION ${soversion} VERSION ${PROJECT_VERSION} EXPORT_NAME ${name}
                                             INSTALL_RPATH ${here}) # it finds librelpos next to itself
  relpos_exports(${target})
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL SHARED_LIBRARY) # static libraries would need io, tokenizer and linear installed too
    return()
  endif()
  if(RELPOS_BUILD_PYTHON)
    install(TARGETS ${target} LIBRARY COMPONENT runtime NAMELINK_SKIP)
    return()
  endif()
  if(NOT BUILD_SHARED_LIBS) # the program loads relpos_mpi, which then contains relpos
    install(TARGETS ${target} LIBRARY COMPONENT runtime NAMELINK_COMPONENT dev)
    return()
  endif()
  install(TARGETS ${target} EXPORT ${target} LIBRARY COMPONENT runtime NAMELINK_COMPONENT dev)
  install(EXPORT ${target} NAMESPACE relpos:: FILE ${target}.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/relpos
                           COMPONENT dev)
  set(cflags ${ARGV2})
  set(libs ${ARGV3})
  configure_file(packaging/cmake/relpos_part.pc.in ${target}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${target}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endfunction()
