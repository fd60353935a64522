-- normal METHOD SEED: mwc-random's normal, or Box and Muller's transform of System.Random.
import qualified Data.ByteString.Builder as B
import Data.IORef
import qualified Data.Vector.Unboxed as V
import System.Environment
import System.IO
import System.IO.Error (catchIOError)
import System.Random
import System.Random.MWC (initialize)
import System.Random.MWC.Distributions (standard)

main :: IO ()
main = do
  [method, seed] <- getArgs
  draw <- case method of
    "mwc" -> standard <$> initialize (V.singleton (fromIntegral (read seed :: Int)))
    _ -> do
      state <- newIORef (mkStdGen (read seed))
      pure $ do
        g <- readIORef state
        let (u, g') = random g; (v, g'') = random g'
        writeIORef state g''
        pure (sqrt (-2 * log (1 - u)) * cos (2 * pi * v) :: Double)
  hSetBinaryMode stdout True
  let loop = do
        n <- readLn :: IO Int
        mapM_ (const (draw >>= B.hPutBuilder stdout . B.doubleLE)) [1 .. n]
        hFlush stdout
        loop
  loop `catchIOError` const (pure ())
