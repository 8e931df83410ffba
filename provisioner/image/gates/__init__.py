"""What fails a build: one file a gate, each a judgement over what `tree` has read of the finished root."""
