"""Read launch scripts, logs and hand-typed pages to create run files and diagnoses."""
