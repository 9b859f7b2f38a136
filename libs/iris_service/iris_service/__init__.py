"""Running a process: settings, logs, signals, metrics, tracing, listeners, child processes."""
