/* Spawn a command COUNT times, AT_ONCE at a time, and wait for each: the least that starting a process costs.
 *
 * Prints commands a second; their output goes to /dev/null. Usage: spawn COUNT AT_ONCE PATH [ARGUMENT...] */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  long count = atol(argv[1]), at_once = atol(argv[2]), started = 0, ended = 0;
  char **command = argv + 3, *environment[] = {NULL};
  posix_spawn_file_actions_t quiet;
  struct timespec began, now;
  if (posix_spawn_file_actions_init(&quiet)) return 1;
  if (posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0)) return 1;
  clock_gettime(CLOCK_MONOTONIC, &began);
  while (ended < count) {
    while (started < count && started - ended < at_once) {
      pid_t pid;
      if (posix_spawn(&pid, command[0], &quiet, NULL, command, environment) != 0) return 1;
      started++;
    }
    if (waitpid(-1, NULL, 0) < 0) return 1;
    ended++;
  }
  clock_gettime(CLOCK_MONOTONIC, &now);
  printf("%.1f\n", count / ((now.tv_sec - began.tv_sec) + (now.tv_nsec - began.tv_nsec) / 1e9));
  return 0;
}
