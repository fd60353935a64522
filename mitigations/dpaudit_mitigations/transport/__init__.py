"""What the networked mitigations share: certificates, authenticated vector streams, journals."""
