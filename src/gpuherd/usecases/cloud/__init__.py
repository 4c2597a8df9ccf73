"""Looking at the cloud: machines and catalogue."""
