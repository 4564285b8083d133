"""What happens when: claims, pinning, settings, recovery and audit, one module for each job."""
