"""Noise from several servers, added up under masks: nobody sees a sum with less than the honest noise in it."""
