"""Orders commits: intake, admission checks, the sequencer thread, its state cache."""
