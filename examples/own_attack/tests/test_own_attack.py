from dpaudit.testing import check_attack
from own_attack import NearestCandidate


def test_conforms():
    check_attack(NearestCandidate(), dim=16)
