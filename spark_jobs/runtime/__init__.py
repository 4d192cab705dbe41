"""Where jobs run and write: runners, shuffles, paths, output files, progress, packing."""
