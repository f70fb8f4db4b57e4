package tercio.prism.ycsb;

import java.io.IOException;

/** Where records are. */
interface Records extends AutoCloseable {
  /** The value of a key, or null. */
  byte[] get(String name) throws IOException;

  /** Sets the value of a key. */
  void put(String name, byte[] value) throws IOException;

  /** Removes a key; false when it was not there. */
  boolean delete(String name) throws IOException;

  @Override
  void close();
}
