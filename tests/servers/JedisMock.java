import com.github.fppt.jedismock.RedisServer;

/** The fake for Java, at the port of its argument. */
class JedisMock {
  public static void main(String[] arguments) throws Exception {
    RedisServer.newRedisServer(Integer.parseInt(arguments[0])).start();
    Thread.currentThread().join();
  }
}
