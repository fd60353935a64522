! normal METHOD SEED: Box and Muller's transform, both outputs, of random_number.
program normal
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  integer :: n, i, size, seed, status
  character(40) :: text
  real(real64) :: u(2), kept
  real(real64), allocatable :: x(:)
  logical :: have = .false.
  call get_command_argument(2, text)
  read (text, *) seed
  call random_seed(size=size)
  call random_seed(put=[(seed + 7919 * i, i = 1, size)])
  open (11, file='/dev/stdout', access='stream', form='unformatted', status='old')
  do
    read (*, *, iostat=status) n
    if (status /= 0) exit
    allocate (x(n))
    do i = 1, n
      if (have) then
        x(i) = kept
      else
        call random_number(u)
        x(i) = sqrt(-2 * log(1 - u(1))) * cos(2 * acos(-1._real64) * u(2))
        kept = sqrt(-2 * log(1 - u(1))) * sin(2 * acos(-1._real64) * u(2))
      end if
      have = .not. have
    end do
    write (11) x
    flush (11)
    deallocate (x)
  end do
end program
