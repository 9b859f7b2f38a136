"""Files that are sent to tasks or fetched from them: bundles, output directories, archives."""
