"""What tests of several folders share: documents of every kind, pages taken apart, validators, samplers that misbehave."""
