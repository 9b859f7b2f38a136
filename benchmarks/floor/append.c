/* Append 512 bytes to FILE COUNT times, each synced before the next: the least that a durable commit costs.
 *
 * Prints appends a second. Usage: append COUNT FILE */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  long count = atol(argv[1]);
  static const char record[512];
  int file = open(argv[2], O_WRONLY | O_CREAT | O_APPEND, 0600);
  struct timespec began, now;
  clock_gettime(CLOCK_MONOTONIC, &began);
  for (long n = 0; n < count; n++)
    if (write(file, record, sizeof record) != sizeof record || fsync(file) != 0) return 1;
  clock_gettime(CLOCK_MONOTONIC, &now);
  printf("%.1f\n", count / ((now.tv_sec - began.tv_sec) + (now.tv_nsec - began.tv_nsec) / 1e9));
  return 0;
}
