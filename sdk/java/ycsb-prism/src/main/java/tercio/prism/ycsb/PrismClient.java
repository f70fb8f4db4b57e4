package tercio.prism.ycsb;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * PRISM-KV, or PRISM-RS, as a database of YCSB. Properties: {@code prism.host} (127.0.0.1), {@code
 * prism.port} (7400), or {@code prism.group} for PRISM-RS: the ports of all members, in order, with
 * commas; {@code prism.keyfile} (prism.key). A record is one value: its fields, each with the lengths
 * of its name and content before them. An update of some fields reads the record first.
 */
public final class PrismClient extends DB {
  private Records store;

  @Override
  public void init() throws DBException {
    Properties given = getProperties();
    try {
      String capability =
          Files.readString(Path.of(given.getProperty("prism.keyfile", "prism.key"))).trim();
      String host = given.getProperty("prism.host", "127.0.0.1");
      String group = given.getProperty("prism.group");
      if (group != null) {
        int[] ports = Arrays.stream(group.split(",")).mapToInt(Integer::parseInt).toArray();
        store = new RsStore(host, ports, capability);
      } else {
        int port = Integer.parseInt(given.getProperty("prism.port", "7400"));
        store = new PrismStore(new PrismConnection(host, port, capability));
      }
    } catch (IOException | NumberFormatException error) {
      throw new DBException("the store cannot be reached: " + error.getMessage(), error);
    }
  }

  @Override
  public void cleanup() {
    store.close();
  }

  @Override
  public Status read(
      String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    try {
      byte[] record = store.get(name(table, key));
      if (record == null) {
        return Status.NOT_FOUND;
      }
      Map<String, byte[]> all = unpack(record);
      for (Map.Entry<String, byte[]> field : all.entrySet()) {
        if (fields == null || fields.contains(field.getKey())) {
          result.put(field.getKey(), new ByteArrayByteIterator(field.getValue()));
        }
      }
      return Status.OK;
    } catch (IOException | RuntimeException error) {
      return failed(error);
    }
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    try {
      store.put(name(table, key), pack(bytes(values)));
      return Status.OK;
    } catch (IOException | RuntimeException error) {
      return failed(error);
    }
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    try {
      byte[] record = store.get(name(table, key));
      if (record == null) {
        return Status.NOT_FOUND;
      }
      Map<String, byte[]> all = unpack(record);
      all.putAll(bytes(values));
      store.put(name(table, key), pack(all));
      return Status.OK;
    } catch (IOException | RuntimeException error) {
      return failed(error);
    }
  }

  @Override
  public Status delete(String table, String key) {
    try {
      return store.delete(name(table, key)) ? Status.OK : Status.NOT_FOUND;
    } catch (IOException | RuntimeException error) {
      return failed(error);
    }
  }

  @Override
  public Status scan(
      String table,
      String from,
      int count,
      Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    return Status.NOT_IMPLEMENTED;
  }

  private static Status failed(Exception error) {
    System.err.println("prism: " + error);
    return Status.ERROR;
  }

  private static String name(String table, String key) {
    return table + "/" + key;
  }

  private static Map<String, byte[]> bytes(Map<String, ByteIterator> values) {
    Map<String, byte[]> bytes = new HashMap<>();
    values.forEach((field, value) -> bytes.put(field, value.toArray()));
    return bytes;
  }

  private static byte[] pack(Map<String, byte[]> fields) {
    int length = 0;
    Map<byte[], byte[]> parts = new HashMap<>();
    for (Map.Entry<String, byte[]> field : fields.entrySet()) {
      byte[] name = field.getKey().getBytes(StandardCharsets.UTF_8);
      parts.put(name, field.getValue());
      length += 8 + name.length + field.getValue().length;
    }
    ByteBuffer record = ByteBuffer.allocate(length);
    parts.forEach(
        (name, value) -> record.putInt(name.length).putInt(value.length).put(name).put(value));
    return record.array();
  }

  private static Map<String, byte[]> unpack(byte[] bytes) {
    ByteBuffer record = ByteBuffer.wrap(bytes);
    Map<String, byte[]> fields = new HashMap<>();
    while (record.hasRemaining()) {
      byte[] name = new byte[record.getInt()];
      byte[] value = new byte[record.getInt()];
      record.get(name).get(value);
      fields.put(new String(name, StandardCharsets.UTF_8), value);
    }
    return fields;
  }
}
