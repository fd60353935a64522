--  normal METHOD SEED: Box and Muller's transform, both outputs, of Ada.Numerics.Float_Random.
with Ada.Command_Line, Ada.Numerics.Float_Random, Ada.Numerics.Long_Elementary_Functions;
with Ada.Text_IO, Ada.Text_IO.Text_Streams;
procedure Normal is
   use Ada.Numerics.Float_Random, Ada.Numerics.Long_Elementary_Functions, Ada.Text_IO;
   G : Generator;
   Out_Stream : constant Text_Streams.Stream_Access := Text_Streams.Stream (Standard_Output);
   Kept, R, Angle, X : Long_Float := 0.0;
   Have : Boolean := False;
begin
   Reset (G, Integer'Value (Ada.Command_Line.Argument (2)));
   loop
      for I in 1 .. Integer'Value (Get_Line) loop
         if Have then
            X := Kept;
         else
            R := Sqrt (-2.0 * Log (1.0 - Long_Float (Random (G))));
            Angle := 2.0 * Ada.Numerics.Pi * Long_Float (Random (G));
            X := R * Cos (Angle);
            Kept := R * Sin (Angle);
         end if;
         Have := not Have;
         Long_Float'Write (Out_Stream, X);
      end loop;
      Flush;
   end loop;
exception
   when End_Error => null;
end Normal;
