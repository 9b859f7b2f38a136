/* Append SIZE bytes to FILE COUNT times and sync each: the least that a durable commit costs.
 *
 * Prints appends a second. Usage: append FILE COUNT SIZE */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  long count = atol(argv[2]);
  size_t size = (size_t)atol(argv[3]);
  char *bytes = calloc(1, size);
  int file = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (bytes == NULL || file < 0) return 1;
  struct timespec began, now;
  clock_gettime(CLOCK_MONOTONIC, &began);
  for (long n = 0; n < count; n++)
    if (write(file, bytes, size) != (ssize_t)size || fsync(file) != 0) return 1;
  clock_gettime(CLOCK_MONOTONIC, &now);
  printf("%.1f\n", count / ((now.tv_sec - began.tv_sec) + (now.tv_nsec - began.tv_nsec) / 1e9));
  return 0;
}
