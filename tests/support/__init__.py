"""What tests of several folders share: documents, pages taken apart, validators, samplers."""
