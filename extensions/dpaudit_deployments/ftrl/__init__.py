"""DP-FTRL: federated training with correlated noise. Only ``host`` imports torch."""
