(* normal METHOD SEED: Box and Muller's transform, both outputs, of Random.float. *)
let kept = ref None

let draw () =
  match !kept with
  | Some x -> kept := None; x
  | None ->
      let r = sqrt (-2. *. log (1. -. Random.float 1.)) in
      let angle = 8. *. atan 1. *. Random.float 1. in
      kept := Some (r *. sin angle);
      r *. cos angle

let () =
  Random.init (int_of_string Sys.argv.(2));
  set_binary_mode_out stdout true;
  let bytes = Bytes.create 8 in
  try
    while true do
      for _ = 1 to int_of_string (String.trim (input_line stdin)) do
        Bytes.set_int64_le bytes 0 (Int64.bits_of_float (draw ()));
        output_bytes stdout bytes
      done;
      flush stdout
    done
  with End_of_file -> ()
