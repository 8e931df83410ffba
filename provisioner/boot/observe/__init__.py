"""What is heard of boots and of unknown machines: nothing here is authenticated, so it is only shown."""
