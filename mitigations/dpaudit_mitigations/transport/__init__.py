"""What the networked mitigations share: certificates, mutually authenticated streams of vectors, durable journals."""
