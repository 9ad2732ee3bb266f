// Runs node-zookeeper-client against the servers in ZK.
'use strict';

const net = require('net');
const util = require('util');
const zookeeper = require('node-zookeeper-client');

const { CreateMode, Exception, ACL, Permission, Id } = zookeeper;
const root = '/node-' + process.pid;
const checks = [];

function check(name, body) {
  checks.push({ name, body });
}

function equal(got, want, what) {
  const g = JSON.stringify(got);
  const w = JSON.stringify(want);
  if (g !== w) throw new Error(`${what}: got ${g}, want ${w}`);
}

// A connected client whose callback methods return promises.
async function connect(hosts = process.env.ZK) {
  const raw = zookeeper.createClient(hosts, { sessionTimeout: 30000, spinDelay: 50, retries: 2 });
  const connected = new Promise((done) => raw.once('connected', done));
  raw.connect();
  await within(connected, 'connected');
  const c = { raw, close: () => raw.close() };
  // Lets the client see what has been written so far. The library has no sync,
  // but a read waits for earlier writes of the same session.
  c.caughtUp = async () => {
    const p = root + '/sync-';
    await c.create(p, CreateMode.EPHEMERAL_SEQUENTIAL);
    return c;
  };
  for (const m of ['create', 'remove', 'setData', 'mkdirp', 'setACL']) c[m] = util.promisify(raw[m]).bind(raw);
  for (const m of ['exists', 'getData', 'getChildren', 'getACL']) {
    c[m] = (...args) => new Promise((done, fail) => {
      raw[m](...args, (err, a, b) => (err ? fail(err) : done([a, b])));
    });
  }
  return c;
}

function within(promise, what) {
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error('never came: ' + what)), 60000);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function fails(promise, code) {
  try {
    await promise;
  } catch (e) {
    equal(e.getCode(), code, 'error code');
    return;
  }
  throw new Error('no error');
}

function sleep(ms) {
  return new Promise((done) => setTimeout(done, ms));
}

async function fresh(c, name) {
  return c.mkdirp(root + '/' + name).then(() => root + '/' + name);
}

// One line to the referee; resolves to its answer.
class Referee {
  constructor() {
    const [host, port] = process.env.REFEREE.split(':');
    this.socket = net.connect(Number(port), host);
    this.waiting = [];
    let text = '';
    this.socket.on('data', (b) => {
      text += b;
      for (let i; (i = text.indexOf('\n')) >= 0; text = text.slice(i + 1)) this.waiting.shift()(text.slice(0, i));
    });
  }

  say(line) {
    return new Promise((done) => {
      this.waiting.push(done);
      this.socket.write(line + '\n');
    });
  }
}

check('operations', async () => {
  const c = await connect();
  const d = await fresh(c, 'ops');
  equal(await c.create(d + '/a', Buffer.from('one')), d + '/a', 'create');
  const [data, stat] = await c.getData(d + '/a');
  equal([data.toString(), stat.version], ['one', 0], 'data');
  await c.setData(d + '/a', Buffer.from('two'), 0);
  await fails(c.setData(d + '/a', Buffer.from('x'), 0), Exception.BAD_VERSION);
  await fails(c.create(d + '/a', null), Exception.NODE_EXISTS);
  await fails(c.getData(d + '/none'), Exception.NO_NODE);
  await fails(c.remove(d, -1), Exception.NOT_EMPTY);
  equal(await c.create(d + '/s-', CreateMode.EPHEMERAL_SEQUENTIAL), d + '/s-0000000001', 'sequential');
  equal((await c.getChildren(d))[0].sort(), ['a', 's-0000000001'], 'children');
  equal((await c.exists(d + '/none'))[0], null, 'exists');
  c.close();
});

check('transaction', async () => {
  const c = await connect();
  const d = await fresh(c, 'txn');
  const commit = (t) => new Promise((done) => t.commit((err, results) => done([err, results])));
  let [err, results] = await commit(c.raw.transaction()
    .create(d + '/a', Buffer.from('1')).setData(d + '/a', Buffer.from('2')).check(d + '/a', 1).create(d + '/b').remove(d + '/b'));
  equal([err && err.toString(), results.length], [null, 5], 'commit');
  [err] = await commit(c.raw.transaction().remove(d + '/a').check(d, 9));
  equal(err.getCode(), Exception.BAD_VERSION, 'failed commit');
  equal((await c.getChildren(d))[0], ['a'], 'nothing happened');
  c.close();
});

check('acl', async () => {
  const c = await connect();
  const other = await connect();
  const d = await fresh(c, 'acl');
  c.raw.addAuthInfo('digest', Buffer.from('nora:pw'));
  await c.create(d + '/mine', Buffer.from('m'), ACL.CREATOR_ALL_ACL);
  await fails((await other.caughtUp()).getData(d + '/mine'), Exception.NO_AUTH);
  const [acls] = await c.getACL(d + '/mine');
  equal([acls[0].permission, acls[0].id.scheme], [31, 'digest'], 'acl');
  await c.setACL(d + '/mine', [new ACL(Permission.READ, Id.ANYONE_ID_UNSAFE)], -1);
  await (await other.caughtUp()).getData(d + '/mine');
  other.close();
  c.close();
});

check('watches', async () => {
  const c = await connect();
  const w = await connect();
  const d = await fresh(c, 'watches');
  const event = (m, p) => {
    let fire;
    const fired = new Promise((done) => { fire = done; });
    return c[m](p, (e) => fire(e.getName() + ' ' + e.getPath())).then(() => () => within(fired, m + ' event'));
  };
  const born = await event('exists', d + '/n');
  const child = await event('getChildren', d);
  await w.create(d + '/n', null);
  equal([await born(), await child()], ['NODE_CREATED ' + d + '/n', 'NODE_CHILDREN_CHANGED ' + d], 'created');
  await c.caughtUp();
  const data = await event('getData', d + '/n');
  await w.setData(d + '/n', Buffer.from('1'));
  equal(await data(), 'NODE_DATA_CHANGED ' + d + '/n', 'changed');
  await c.caughtUp();
  const gone = await event('exists', d + '/n');
  await w.remove(d + '/n');
  equal(await gone(), 'NODE_DELETED ' + d + '/n', 'deleted');
  w.close();
  c.close();
});

check('pipelined-requests-are-answered-in-order', async () => {
  const c = await connect();
  const d = await fresh(c, 'pipeline');
  const order = [];
  const all = [];
  for (let i = 0; i < 300; i++) {
    all.push(c.create(d + '/' + i, null).then(() => order.push(i)));
  }
  await within(Promise.all(all), 'all answers');
  equal(order, [...Array(300).keys()], 'order');
  c.close();
});

check('reconnect-keeps-session-and-watches', async () => {
  const ref = new Referee();
  const c = await connect(process.env.RELAY);
  const w = await connect();
  const d = await fresh(c, 'reconnect');
  c.raw.addAuthInfo('digest', Buffer.from('nora:pw'));
  await c.create(d + '/mine', null, ACL.CREATOR_ALL_ACL, CreateMode.EPHEMERAL);
  await c.create(d + '/n', null);
  const session = c.raw.getSessionId().toString('hex');
  let fire;
  const fired = new Promise((done) => { fire = done; });
  await c.getData(d + '/n', (e) => fire(e.getName()));
  const again = new Promise((done) => c.raw.once('connected', done));
  equal(await ref.say('refuse 200'), 'ok', 'cut');
  await w.setData(d + '/n', Buffer.from('1'));
  equal(await within(fired, 'event'), 'NODE_DATA_CHANGED', 'event');
  await within(again, 'reconnect');
  equal(c.raw.getSessionId().toString('hex'), session, 'session');
  await c.setData(d + '/mine', Buffer.from('x'));
  w.close();
  c.close();
  ref.socket.end();
});

check('lock-excludes-across-clients', async () => {
  const dir = await connect();
  const d = await fresh(dir, 'lock');
  const contend = async () => {
    const c = await connect();
    const ref = new Referee();
    for (let round = 0; round < 15; round++) {
      const mine = (await c.create(d + '/lock-', CreateMode.EPHEMERAL_SEQUENTIAL)).slice(d.length + 1);
      for (;;) {
        const names = (await c.getChildren(d))[0].sort();
        const at = names.indexOf(mine);
        if (at === 0) break;
        let fire;
        const fired = new Promise((done) => { fire = done; });
        const [stat] = await c.exists(d + '/' + names[at - 1], fire);
        if (stat) await within(fired, 'predecessor gone');
      }
      equal(await ref.say('enter node-lock x'), 'ok', 'referee');
      await sleep(1);
      await ref.say('leave node-lock');
      await c.remove(d + '/' + mine);
    }
    c.close();
    ref.socket.end();
  };
  await Promise.all([contend(), contend(), contend(), contend()]);
  dir.close();
});

(async () => {
  let n = 0;
  for (const { name, body } of checks) {
    n++;
    try {
      await body();
      console.log('ok ' + name);
    } catch (e) {
      console.error(e);
      console.log(`fail ${name}: ${String(e).replace(/\n/g, ' ')}`);
    }
  }
  console.log('done ' + n);
  process.exit(0);
})();
