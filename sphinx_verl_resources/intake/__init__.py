"""Read launch scripts and logs to create run files and diagnoses."""
