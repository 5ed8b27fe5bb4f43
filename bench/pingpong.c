/* pingpong.c -- time messages between two processes, for the model of bench/scaling_model.py.
 *     mpicc -O2 bench/pingpong.c -o pingpong && mpirun -n 2 ./pingpong
 * Prints a JSON object for each size: bytes, and seconds of one way, the median of many round trips.
 * SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { TRIPS = 41 };

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Return the seconds of a round trip. */
static double round_trip(int rank, char *data, int bytes)
{
    const double start = MPI_Wtime();
    for (int n = 0; n < 2; n++)
        if (n == rank)
            MPI_Send(data, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD);
        else
            MPI_Recv(data, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return MPI_Wtime() - start;
}

int main(int argc, char **argv)
{
    static const int sizes[] = {8, 4096, 262144, 1 << 20, 1 << 23};
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *data = calloc(1, 1 << 23);
    for (size_t n = 0; data != NULL && n < sizeof sizes / sizeof *sizes; n++) {
        double seconds[TRIPS];
        for (int k = 0; k < TRIPS; k++)
            seconds[k] = round_trip(rank, data, sizes[n]);
        qsort(seconds, TRIPS, sizeof *seconds, by_size);
        if (rank == 0)
            printf("{\"bytes\": %d, \"seconds\": %.4g}\n", sizes[n], seconds[TRIPS / 2] / 2);
    }
    free(data);
    MPI_Finalize();
    return data == NULL;
}
