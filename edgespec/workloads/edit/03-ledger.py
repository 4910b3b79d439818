"""A double-entry bank ledger: every transfer books two equal and opposite lines."""

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass

DAILY_LIMIT = 200_000


class LedgerError(Exception):
    pass


@dataclass(frozen=True)
class Line:
    account: str
    amount: int
    day: dt.date
    note: str


class Ledger:
    def __init__(self, currency="EUR"):
        self.currency = currency
        self.accounts = {}
        self.lines = []

    def open_account(self, number, owner, overdraft=0):
        if number in self.accounts:
            raise LedgerError(f"account {number} exists already")
        if overdraft < 0:
            raise LedgerError("the overdraft must not be negative")
        self.accounts[number] = {"owner": owner, "overdraft": overdraft, "closed": False}

    def _check_open(self, number):
        account = self.accounts.get(number)
        if account is None:
            raise LedgerError(f"no account {number}")
        if account["closed"]:
            raise LedgerError(f"account {number} is closed")
        return account

    def balance(self, number):
        self._check_open(number)
        return sum(line.amount for line in self.lines if line.account == number)

    def spent_on(self, number, day):
        spent = 0
        for line in self.lines:
            if line.account == number and line.day == day and line.amount < 0:
                spent -= line.amount
        return spent

    def transfer(self, source, target, amount, day, note=""):
        if amount <= 0:
            raise LedgerError("the amount must be positive")
        if source == target:
            raise LedgerError("source and target are the same account")
        account = self._check_open(source)
        self._check_open(target)
        if self.balance(source) + account["overdraft"] < amount:
            raise LedgerError(f"account {source} has not enough cover for {amount}")
        if self.spent_on(source, day) + amount > DAILY_LIMIT:
            raise LedgerError(f"account {source} would pass its daily limit")
        self.lines.append(Line(source, -amount, day, note))
        self.lines.append(Line(target, amount, day, note))

    def deposit(self, number, amount, day):
        if amount <= 0:
            raise LedgerError("the amount must be positive")
        self._check_open(number)
        self.lines.append(Line(number, amount, day, "cash deposit"))
        self.lines.append(Line("cash", -amount, day, "cash deposit"))

    def close_account(self, number):
        if self.balance(number) != 0:
            raise LedgerError(f"account {number} still has a balance")
        self.accounts[number]["closed"] = True

    def statement(self, number, first, last):
        rows = []
        running = 0
        for line in sorted(self.lines, key=lambda line: line.day):
            if line.account != number:
                continue
            running += line.amount
            if first <= line.day <= last:
                rows.append((line.day.isoformat(), line.note, line.amount, running))
        return rows

    def monthly_totals(self, number):
        totals = defaultdict(int)
        for line in self.lines:
            if line.account == number:
                totals[line.day.strftime("%Y-%m")] += line.amount
        return dict(totals)

    def is_balanced(self):
        return sum(line.amount for line in self.lines) == 0
