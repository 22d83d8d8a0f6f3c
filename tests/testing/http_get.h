// One HTTP request to this machine, for tests of endpoints.
// Blocking: until the server closes the connection. Thread-safety: thread-safe.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace fuseline::testing {

// The whole answer, headers included; empty where nobody listens on `port`.
inline std::string HttpGet(int port, const std::string& path) {
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    EXPECT_EQ(write(connection, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    char buffer[4096];
    for (ssize_t size = 0; (size = read(connection, buffer, sizeof(buffer))) > 0;) {
      answer.append(buffer, static_cast<size_t>(size));
    }
  }
  close(connection);
  return answer;
}

}  // namespace fuseline::testing
