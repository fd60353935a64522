"""Other people's normal samplers, replayed bit for bit from their uniforms, and searched backwards from their outputs."""
