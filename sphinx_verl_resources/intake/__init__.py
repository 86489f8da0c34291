"""Run files out of what people have: launch scripts, logs, hand-typed pages."""
