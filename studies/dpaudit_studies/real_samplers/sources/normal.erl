%% escript normal.erl ALGORITHM SEED: rand:normal (a ziggurat).
-mode(compile).

main([Algorithm, Seed]) ->
    ok = io:setopts(standard_io, [{encoding, latin1}, binary]),
    serve(rand:seed_s(list_to_atom(Algorithm), list_to_integer(Seed))).

serve(State) ->
    case io:get_line(standard_io, "") of
        eof -> ok;
        Line ->
            {Values, Next} = draw(binary_to_integer(string:trim(Line)), State, []),
            ok = file:write(standard_io, Values),
            serve(Next)
    end.

draw(0, State, Values) -> {lists:reverse(Values), State};
draw(N, State, Values) ->
    {X, Next} = rand:normal_s(State),
    draw(N - 1, Next, [<<X:64/float-little>> | Values]).
