% swipl normal.prolog METHOD SEED: Box and Muller's transform, both outputs, of random_float; as text.
:- initialization(main, main).
main([_, Seed]) :- atom_number(Seed, S), set_random(seed(S)), serve.
serve :-
    read_line_to_string(user_input, Line),
    ( Line == end_of_file -> true
    ; number_string(N, Line), Pairs is (N + 1) // 2, Odd is N mod 2,
      forall(between(1, Pairs, I), pair(I, Pairs, Odd)), flush_output, serve ).
pair(I, Pairs, Odd) :-
    U is 1 - random_float, V is random_float,
    X is sqrt(-2 * log(U)) * cos(2 * pi * V), Y is sqrt(-2 * log(U)) * sin(2 * pi * V),
    ( I =:= Pairs, Odd =:= 1 -> format("~17g~n", [X]) ; format("~17g~n~17g~n", [X, Y]) ).
