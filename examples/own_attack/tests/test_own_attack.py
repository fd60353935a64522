from own_attack import NearestCandidate

from dpaudit.testing import check_attack


def test_conforms():
    check_attack(NearestCandidate(), dim=16)
