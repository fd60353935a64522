{ normal METHOD SEED: Free Pascal's randg. }
program normal;
uses math;
var
  n, i: longint;
  x: double;
  out_: file of double;
begin
  randseed := 0;
  val(paramstr(2), n);
  randseed := n;
  assign(out_, '/dev/stdout');
  rewrite(out_);
  while not eof do
  begin
    readln(n);
    for i := 1 to n do
    begin
      x := randg(0, 1);
      write(out_, x);
    end;
  end;
end.
