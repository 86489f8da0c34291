"""Reads verl's console logs, and diagnoses runs that ran out of memory."""
