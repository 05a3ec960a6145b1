/** Ports on which a webhook's receiver may listen, unless others are named: 80, 443, and those above 1023 on which nothing else is at home. */

/** What answers there takes no webhooks, and some of it takes a request for commands. */
const othersPorts = new Set([
  ...[1433, 1521, 3306, 5432, 6432, 5984, 8086, 9042, 9160, 27017, 27018, 27019, 28015], // databases
  ...[6379, 6380, 16379, 26379, 11211], // Redis, Memcached
  ...[2181, 2379, 2380, 4369, 5671, 5672, 8500, 9092, 9200, 9300, 61613, 61616], // brokers, search, coordination
  ...[2375, 2376, 6443, 10250, 10255], // containers
  ...[2049, 3389, 5060, 5061, 5900, 6000, 6665, 6666, 6667, 6668, 6669, 6697, 10080], // files, screens, calls, chat
])

export const isUsualPort = (port: number): boolean =>
  port === 443 || port === 80 || (port >= 1_024 && port <= 65_535 && !othersPorts.has(port))
