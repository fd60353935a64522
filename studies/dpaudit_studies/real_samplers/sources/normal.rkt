#lang racket/base
;; racket normal.rkt METHOD SEED: Box and Muller's transform, both outputs, of random.
(require racket/math)
(define arguments (current-command-line-arguments))
(random-seed (modulo (string->number (vector-ref arguments 1)) 2147483647))
(define kept #f)
(define (draw)
  (if kept
      (begin0 kept (set! kept #f))
      (let ([r (sqrt (* -2 (log (- 1 (random)))))] [angle (* 2 pi (random))])
        (set! kept (* r (sin angle)))
        (* r (cos angle)))))
(for ([line (in-lines)])
  (for ([i (in-range (string->number line))])
    (write-bytes (real->floating-point-bytes (draw) 8 #f)))
  (flush-output))
