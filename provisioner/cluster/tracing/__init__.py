"""One boot as a trace for OpenTelemetry: from its order to Ready, a span for each stage. An optional extra."""
