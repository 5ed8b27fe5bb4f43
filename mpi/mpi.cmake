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
if(NOT BUILD_SHARED_LIBS) # relpos_mpi then contains librelpos
  set_target_properties(relpos PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()
target_link_libraries(relpos_mpi PUBLIC relpos MPI::MPI_C PRIVATE $<BUILD_INTERFACE:relpos_flags> Threads::Threads)
list(TRANSFORM MPI_C_INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE mpi_cflags)
list(JOIN mpi_cflags " " mpi_cflags)
list(JOIN MPI_C_LIBRARIES " " mpi_libs)
relpos_part(mpi "Exact attention with relative positions over several processes" "${mpi_cflags}" "${mpi_libs}")
