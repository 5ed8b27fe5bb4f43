# mpi.cmake -- the library relpos_mpi, where CMake finds MPI. The program loads it at run time, so nothing else links MPI.
# SPDX-License-Identifier: Apache-2.0
option(RELPOS_BUILD_MPI "Build the library relpos_mpi if MPI is found" ${posix})
if(RELPOS_BUILD_MPI AND NOT RELPOS_BUILD_PYTHON AND NOT CMAKE_CROSSCOMPILING)
  find_package(MPI COMPONENTS C QUIET)
endif()
if(NOT MPI_C_FOUND)
  return()
endif()
file(GLOB mpi_sources CONFIGURE_DEPENDS mpi/*.c)
add_library(relpos_mpi SHARED ${mpi_sources})
target_include_directories(relpos_mpi PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
if(NOT BUILD_SHARED_LIBS) # relpos_mpi then contains librelpos
  set_target_properties(relpos PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()
target_link_libraries(relpos_mpi PRIVATE $<BUILD_INTERFACE:relpos_flags> relpos MPI::MPI_C Threads::Threads)
set_target_properties(relpos_mpi PROPERTIES SOVERSION ${soversion} VERSION ${PROJECT_VERSION} INSTALL_RPATH ${here})
relpos_exports(relpos_mpi)
install(TARGETS relpos_mpi LIBRARY COMPONENT runtime NAMELINK_COMPONENT dev)
