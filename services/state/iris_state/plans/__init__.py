"""What schedulers propose: accepting plans and recording what they skipped."""
